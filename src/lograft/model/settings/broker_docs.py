# ruff: noqa: E501  (a setting is a line)
"""One sentence about every setting of a node. Loaded only when somebody asks for documentation."""

from typing import Final

_TEXT: Final = """\
add.partitions.to.txn.retry.backoff.max.ms: Longest time the broker retries adding partitions to a transaction while the previous one ends.
add.partitions.to.txn.retry.backoff.ms: Pause between those retries.
advertised.listeners: Addresses that clients and other nodes are told to use; listeners by default.
alter.config.policy.class.name: Policy class that judges changes of settings.
alter.log.dirs.replication.quota.window.num: Samples kept for the quota of moves between log dirs.
alter.log.dirs.replication.quota.window.size.seconds: Length of one such sample.
authorizer.class.name: Who decides what a principal may do; empty allows everything.
auto.create.topics.enable: Whether asking for a topic that does not exist creates it.
auto.leader.rebalance.enable: Whether leadership goes back to the preferred replicas by itself.
background.threads: Worker threads for background work.
broker.heartbeat.interval.ms: How often a broker tells the controller that it is alive.
broker.id: Older name of node.id.
broker.rack: Rack or zone of this broker, used to spread replicas.
broker.session.timeout.ms: How long a broker may be silent before the controller fences it.
client.quota.callback.class: Class that computes quotas.
compression.gzip.level: Level used when the broker itself compresses with gzip.
compression.lz4.level: Level used when the broker itself compresses with lz4.
compression.type: Codec of stored batches; 'producer' keeps what the producer chose.
compression.zstd.level: Level used when the broker itself compresses with zstd.
config.providers: Names of the providers that resolve variables in the configuration file: file, directory and environment.
connection.failed.authentication.delay.ms: How long a failed login is kept waiting for its answer.
connections.max.idle.ms: A connection without traffic for this long is closed.
connections.max.reauth.ms: Longest life of a SASL session before it must log in again; 0 is for ever.
controlled.shutdown.enable: Whether a stopping broker first hands over what it leads.
controller.listener.names: Names of the listeners that controllers use, the preferred one first.
controller.performance.always.log.threshold.ms: Controller events slower than this are always logged.
controller.performance.sample.period.ms: How often the slowest controller event is logged.
controller.quorum.append.linger.ms: How long the quorum leader gathers records into one write.
controller.quorum.auto.join.enable: Whether a new controller adds itself to a dynamic quorum.
controller.quorum.bootstrap.servers: Addresses where the controllers can be found.
controller.quorum.election.backoff.max.ms: Longest random pause before the next try to get elected.
controller.quorum.election.timeout.ms: How long a candidate waits for votes.
controller.quorum.fetch.max.bytes: Most bytes of metadata in one fetch of the quorum.
controller.quorum.fetch.snapshot.max.bytes: Most bytes of a snapshot in one fetch of the quorum.
controller.quorum.fetch.timeout.ms: Without a successful fetch for this long, a voter stands for election.
controller.quorum.request.timeout.ms: How long a request within the quorum may take.
controller.quorum.retry.backoff.ms: Pause before a failed request within the quorum is sent again.
controller.quorum.voters: Static voters as id@host:port; empty when the quorum is dynamic.
controller.quota.window.num: Samples kept for the quota of controller mutations.
controller.quota.window.size.seconds: Length of one such sample.
controller.socket.timeout.ms: How long requests to the controller may take.
cordoned.log.dirs: Log dirs that take no new partitions.
create.topic.policy.class.name: Policy class that judges new topics.
default.replication.factor: Replicas of topics that are created without a number.
delegation.token.expiry.check.interval.ms: How often expired delegation tokens are looked for.
delegation.token.expiry.time.ms: How long a delegation token lives between renewals.
delegation.token.max.lifetime.ms: How long a delegation token can live with renewals.
delegation.token.secret.key: Secret that signs delegation tokens; the same on every broker.
delete.records.purgatory.purge.interval.requests: How many finished requests are kept in a purgatory before it is purged.
delete.topic.enable: Whether topics can be deleted.
early.start.listeners: Listeners that open before the authorizer is ready.
fetch.max.bytes: Most bytes that one fetch answer may carry.
fetch.purgatory.purge.interval.requests: How many finished requests are kept in a purgatory before it is purged.
follower.fetch.last.tiered.offset.enable: Whether an empty follower starts at the last tiered offset.
group.consumer.assignment.interval.ms: Shortest time between two assignments of a consumer group.
group.consumer.assignors: Server-side assignors for consumer groups, the default first.
group.consumer.heartbeat.interval.ms: Heartbeat interval given to members of consumer groups.
group.consumer.max.assignment.interval.ms: Largest assignment interval a consumer group may set.
group.consumer.max.heartbeat.interval.ms: Largest heartbeat interval a consumer group may set.
group.consumer.max.session.timeout.ms: Largest session timeout a consumer group may set.
group.consumer.max.size: Most members of a consumer group.
group.consumer.migration.policy: Which ways a group may change between the classic and the new protocol.
group.consumer.min.assignment.interval.ms: Smallest assignment interval a consumer group may set.
group.consumer.min.heartbeat.interval.ms: Smallest heartbeat interval a consumer group may set.
group.consumer.min.session.timeout.ms: Smallest session timeout a consumer group may set.
group.consumer.regex.refresh.interval.ms: How often subscriptions by pattern are matched again.
group.consumer.session.timeout.ms: A consumer silent for this long leaves its group.
group.coordinator.append.linger.ms: How long the group coordinator gathers writes; -1 adapts by itself.
group.coordinator.background.threads: Workers for the group coordinator's long computations.
group.coordinator.cached.buffer.max.bytes: Largest buffer the group coordinator keeps for reuse.
group.coordinator.rebalance.protocols: Group protocols that are allowed.
group.coordinator.threads: Threads of the group coordinator.
group.initial.rebalance.delay.ms: How long a new classic group waits for more members.
group.max.session.timeout.ms: Largest session timeout of a classic consumer.
group.max.size: Most members of a classic group.
group.min.session.timeout.ms: Smallest session timeout of a classic consumer.
group.share.assignment.interval.ms: Shortest time between two assignments of a share group.
group.share.assignors: Assignors for share groups.
group.share.delivery.count.limit: How often a record is delivered to a share group before it is given up.
group.share.heartbeat.interval.ms: Heartbeat interval given to members of share groups.
group.share.initialize.retry.interval.ms: Pause before the state of a share partition is set up again.
group.share.max.assignment.interval.ms: Largest assignment interval a share group may set.
group.share.max.delivery.count.limit: Largest delivery limit a share group may set.
group.share.max.heartbeat.interval.ms: Largest heartbeat interval a share group may set.
group.share.max.partition.max.record.locks: Largest number of locks per partition a share group may set.
group.share.max.record.lock.duration.ms: Longest lock of a record a share group may set.
group.share.max.session.timeout.ms: Largest session timeout a share group may set.
group.share.max.share.sessions: Most share sessions of a broker.
group.share.max.size: Most members of a share group.
group.share.min.assignment.interval.ms: Smallest assignment interval a share group may set.
group.share.min.delivery.count.limit: Smallest delivery limit a share group may set.
group.share.min.heartbeat.interval.ms: Smallest heartbeat interval a share group may set.
group.share.min.partition.max.record.locks: Smallest number of locks per partition a share group may set.
group.share.min.record.lock.duration.ms: Shortest lock of a record a share group may set.
group.share.min.session.timeout.ms: Smallest session timeout a share group may set.
group.share.partition.max.record.locks: Most records of a partition that are locked at a time.
group.share.persister.class.name: Class that keeps share state.
group.share.record.lock.duration.ms: How long a member of a share group holds a record.
group.share.session.timeout.ms: A share consumer silent for this long leaves its group.
group.streams.assignment.interval.ms: Shortest time between two assignments of a streams group.
group.streams.heartbeat.interval.ms: Heartbeat interval given to members of streams groups.
group.streams.initial.rebalance.delay.ms: How long a new streams group waits for more members.
group.streams.max.assignment.interval.ms: Largest assignment interval a streams group may set.
group.streams.max.heartbeat.interval.ms: Largest heartbeat interval a streams group may set.
group.streams.max.session.timeout.ms: Largest session timeout a streams group may set.
group.streams.max.size: Most members of a streams group.
group.streams.max.standby.replicas: Most standby replicas a streams group may ask for.
group.streams.min.assignment.interval.ms: Smallest assignment interval a streams group may set.
group.streams.min.heartbeat.interval.ms: Smallest heartbeat interval a streams group may set.
group.streams.min.session.timeout.ms: Smallest session timeout a streams group may set.
group.streams.num.standby.replicas: Standby replicas of each stateful task.
group.streams.session.timeout.ms: A streams member silent for this long leaves its group.
initial.broker.registration.timeout.ms: How long a starting broker tries to register before it gives up.
inter.broker.listener.name: Listener that brokers use among themselves.
internal.metadata.delete.delay.millis: How long removed files of the metadata log stay on disk.
internal.metadata.log.segment.bytes: Segment size of the metadata log, for tests.
internal.metadata.max.batch.size.in.bytes: Largest batch of the metadata log.
kafka.metrics.polling.interval.secs: How often the metrics reporters below are asked.
kafka.metrics.reporters: Reporter classes for Yammer metrics.
leader.imbalance.check.interval.seconds: How often the controller looks for leaders that should go home.
listener.security.protocol.map: How each listener talks, as NAME:PROTOCOL pairs.
listeners: Addresses to listen on, as NAME://host:port.
log.cleaner.backoff.ms: Pause of the cleaner when there is nothing to compact.
log.cleaner.dedupe.buffer.size: Memory for the cleaners' tables of keys, all threads together.
log.cleaner.delete.retention.ms: How long tombstones stay after compaction.
log.cleaner.enable: Whether logs are compacted at all.
log.cleaner.io.buffer.load.factor: How full the cleaners' tables may get.
log.cleaner.io.buffer.size: Memory for the cleaners' reads and writes, all threads together.
log.cleaner.io.max.bytes.per.second: Most bytes a second that the cleaner reads and writes together; 0 stops it.
log.cleaner.max.compaction.lag.ms: Longest time a record may stay uncompacted.
log.cleaner.min.cleanable.ratio: Share of a log that must be dirty before it is compacted.
log.cleaner.min.compaction.lag.ms: Shortest time a record stays uncompacted.
log.cleaner.threads: Workers that compact logs.
log.cleanup.policy: What happens to old segments: delete, compact, both or nothing.
log.dir: Data folder, used when log.dirs is not set.
log.dir.failure.timeout.ms: A broker that led replicas in a failed log dir and cannot report that for this long stops.
log.dirs: Data folders; new partitions go to the least loaded one.
log.flush.interval.messages: Records after which a log is fsynced.
log.flush.interval.ms: Time after which a log with new records is fsynced.
log.flush.offset.checkpoint.interval.ms: How often recovery points are written down.
log.flush.scheduler.interval.ms: How often logs are looked at for a due fsync.
log.flush.start.offset.checkpoint.interval.ms: How often log start offsets are written down.
log.index.interval.bytes: Bytes of log between two entries of the offset index.
log.index.size.max.bytes: Largest size of an index file.
log.initial.task.delay.ms: Pause after the start before retention, flush and checkpoints begin.
log.local.retention.bytes: Size kept locally when older segments are tiered; -2 follows log.retention.bytes.
log.local.retention.ms: Time kept locally when older segments are tiered; -2 follows log.retention.ms.
log.message.timestamp.after.max.ms: How far a record's timestamp may lie in the future.
log.message.timestamp.before.max.ms: How far a record's timestamp may lie in the past.
log.message.timestamp.type: Whether records keep the producer's time or get the broker's.
log.preallocate: Whether disk space for a whole segment is allocated when it begins; the rest is given back when it is rolled.
log.retention.bytes: Size of a partition beyond which old segments go; -1 is no limit.
log.retention.check.interval.ms: How often retention is applied.
log.retention.hours: Age beyond which segments go, in hours; the weakest of the three.
log.retention.minutes: Age beyond which segments go, in minutes; wins over hours.
log.retention.ms: Age beyond which segments go, in milliseconds; -1 is never; wins over the other two.
log.roll.hours: Age at which a new segment begins, in hours.
log.roll.jitter.hours: Largest random part taken off that age, in hours.
log.roll.jitter.ms: Largest random part taken off that age; wins over hours.
log.roll.ms: Age at which a new segment begins, in milliseconds; wins over hours.
log.segment.bytes: Size at which a new segment begins.
log.segment.delete.delay.ms: How long removed segment files stay on disk.
max.connection.creation.rate: Most new connections a second.
max.connections: Most open connections of the broker.
max.connections.per.ip: Most open connections from one address.
max.connections.per.ip.overrides: Other limits for some addresses, as host:count pairs.
max.incremental.fetch.session.cache.slots: Most fetch sessions the broker keeps.
max.request.partition.size.limit: Most partitions in one answer to DescribeTopicPartitions.
message.max.bytes: Largest record batch that is accepted.
metadata.log.dir: Folder of the metadata log; the first of log.dirs by default.
metadata.log.max.record.bytes.between.snapshots: Bytes of new metadata after which a snapshot is made.
metadata.log.max.snapshot.interval.ms: Longest time between two snapshots of changed metadata; 0 is no limit.
metadata.log.segment.bytes: Segment size of the metadata log.
metadata.log.segment.ms: Segment age of the metadata log.
metadata.max.idle.interval.ms: How often an idle leader of several voters writes a no-op record; 0 is never.
metadata.max.retention.bytes: Size of metadata log and snapshots beyond which old ones go.
metadata.max.retention.ms: Age of metadata log and snapshots beyond which old ones go.
metric.reporters: Reporter classes for metrics.
metrics.num.samples: Samples kept for each metric.
metrics.recording.level: How detailed metrics are.
metrics.sample.window.ms: Length of one sample.
min.insync.replicas: Replicas that must hold a record before acks=all is answered.
node.id: Number of this node, unique in the cluster.
num.io.threads: Threads that process requests.
num.network.threads: Threads that read requests and write responses.
num.partitions: Partitions of topics that are created without a number.
num.recovery.threads.per.data.dir: Workers per log dir for recovery at the start and flushing at the stop.
num.replica.alter.log.dirs.threads: Workers that move replicas between log dirs.
num.replica.fetchers: Fetch streams to each other broker.
offset.metadata.max.bytes: Longest text that may be committed with an offset.
offsets.commit.timeout.ms: How long a commit waits for its replicas.
offsets.load.buffer.size: Batch size when committed offsets are loaded.
offsets.retention.check.interval.ms: How often expired offsets are looked for.
offsets.retention.minutes: How long offsets of an empty group are kept.
offsets.topic.compression.codec: Codec of the offsets topic, by number.
offsets.topic.num.partitions: Partitions of the offsets topic; must not change once it exists.
offsets.topic.replication.factor: Replicas of the offsets topic.
offsets.topic.segment.bytes: Segment size of the offsets topic.
principal.builder.class: Class that names who is connected.
process.roles: What this node is: broker, controller, or both.
producer.id.expiration.check.interval.ms: How often idle producer ids are looked for.
producer.id.expiration.ms: How long the state of an idle producer is kept.
producer.purgatory.purge.interval.requests: How many finished requests are kept in a purgatory before it is purged.
queued.max.request.bytes: Most bytes of requests in work before the broker stops reading; -1 is no limit.
queued.max.requests: Most requests in work before the broker stops reading.
quota.window.num: Samples kept for client quotas.
quota.window.size.seconds: Length of one such sample.
remote.fetch.max.wait.ms: How long a fetch waits for tiered data.
remote.list.offsets.request.timeout.ms: How long ListOffsets waits for tiered data.
remote.log.index.file.cache.total.size.bytes: Space for indexes of tiered segments.
remote.log.index.file.cache.ttl.ms: How long an unused index of a tiered segment is kept.
remote.log.manager.copier.thread.pool.size: Workers that copy segments to the tier.
remote.log.manager.copy.max.bytes.per.second: Most bytes a second that go to the tier.
remote.log.manager.copy.quota.window.num: Samples kept for that quota.
remote.log.manager.copy.quota.window.size.seconds: Length of one such sample.
remote.log.manager.expiration.thread.pool.size: Workers that remove expired tiered segments.
remote.log.manager.fetch.max.bytes.per.second: Most bytes a second that come from the tier.
remote.log.manager.fetch.quota.window.num: Samples kept for that quota.
remote.log.manager.fetch.quota.window.size.seconds: Length of one such sample.
remote.log.manager.follower.thread.pool.size: Workers for tiered partitions that this broker follows.
remote.log.manager.task.interval.ms: How often the tier's tasks run.
remote.log.manager.task.retry.backoff.max.ms: Longest pause before a failed task runs again.
remote.log.manager.task.retry.backoff.ms: First pause before a failed task runs again.
remote.log.manager.task.retry.jitter: Random part of that pause.
remote.log.manager.thread.pool.size: Workers for the tier's tasks.
remote.log.metadata.custom.metadata.max.bytes: Largest custom metadata of a tiered segment.
remote.log.metadata.manager.class.name: Class that keeps the tier's metadata.
remote.log.metadata.manager.class.path: Where that class is found.
remote.log.metadata.manager.impl.prefix: Prefix of its own settings.
remote.log.metadata.manager.listener.name: Listener it uses to reach the brokers.
remote.log.reader.max.pending.tasks: Most reads from the tier that may wait.
remote.log.reader.threads: Workers that read from the tier.
remote.log.storage.manager.class.name: Class that stores tiered segments.
remote.log.storage.manager.class.path: Where that class is found.
remote.log.storage.manager.impl.prefix: Prefix of its own settings.
remote.log.storage.system.enable: Whether tiered storage is on.
replica.fetch.backoff.ms: Pause after a failed fetch from a leader.
replica.fetch.max.bytes: Most bytes of a partition in one fetch from a leader.
replica.fetch.min.bytes: Bytes a leader waits for before it answers a follower.
replica.fetch.response.max.bytes: Most bytes in one fetch from a leader.
replica.fetch.wait.max.ms: How long a leader waits for those bytes.
replica.high.watermark.checkpoint.interval.ms: How often high watermarks are written down.
replica.lag.time.max.ms: A follower that has not caught up for this long leaves the in-sync set.
replica.selector.class: How a consumer's nearest replica is chosen.
replica.socket.receive.buffer.bytes: Receive buffer of connections to leaders.
replica.socket.timeout.ms: How long a request to a leader may take.
replication.quota.window.num: Samples kept for replication quotas.
replication.quota.window.size.seconds: Length of one such sample.
request.timeout.ms: How long a request to another node may take.
sasl.client.callback.handler.class: Callback class of SASL clients.
sasl.enabled.mechanisms: SASL mechanisms that clients may use.
sasl.jaas.config: Login of a SASL listener in JAAS form.
sasl.kerberos.kinit.cmd: Path of kinit.
sasl.kerberos.min.time.before.relogin: Pause before Kerberos logs in again.
sasl.kerberos.principal.to.local.rules: Rules that shorten Kerberos names.
sasl.kerberos.service.name: Kerberos name of the brokers.
sasl.kerberos.ticket.renew.jitter: Random part of the time of a ticket's renewal.
sasl.kerberos.ticket.renew.window.factor: Part of a ticket's life after which it is renewed.
sasl.login.callback.handler.class: Callback class of logins.
sasl.login.class: Login class.
sasl.login.connect.timeout.ms: How long connecting to the identity provider may take.
sasl.login.read.timeout.ms: How long the identity provider may take to answer.
sasl.login.refresh.buffer.seconds: A token is renewed this long before it ends.
sasl.login.refresh.min.period.seconds: Shortest time between two renewals of a token.
sasl.login.refresh.window.factor: Part of a token's life after which it is renewed.
sasl.login.refresh.window.jitter: Random part of that time.
sasl.login.retry.backoff.max.ms: Longest pause before a failed login is tried again.
sasl.login.retry.backoff.ms: First pause before a failed login is tried again.
sasl.mechanism.controller.protocol: SASL mechanism towards controllers.
sasl.mechanism.inter.broker.protocol: SASL mechanism between brokers.
sasl.oauthbearer.assertion.algorithm: Algorithm that signs assertions.
sasl.oauthbearer.assertion.claim.aud: Audience written into assertions.
sasl.oauthbearer.assertion.claim.exp.seconds: Life of an assertion.
sasl.oauthbearer.assertion.claim.iss: Issuer written into assertions.
sasl.oauthbearer.assertion.claim.jti.include: Whether assertions carry a unique id.
sasl.oauthbearer.assertion.claim.nbf.seconds: How far before now an assertion begins to hold.
sasl.oauthbearer.assertion.claim.sub: Subject written into assertions.
sasl.oauthbearer.assertion.file: File with a ready assertion.
sasl.oauthbearer.assertion.private.key.file: File with the key that signs assertions.
sasl.oauthbearer.assertion.private.key.passphrase: Passphrase of that key.
sasl.oauthbearer.assertion.template.file: File with fixed parts of assertions.
sasl.oauthbearer.client.credentials.client.id: Client id for the identity provider.
sasl.oauthbearer.client.credentials.client.secret: Client secret for the identity provider.
sasl.oauthbearer.clock.skew.seconds: Difference of clocks that is forgiven.
sasl.oauthbearer.expected.audience: Audiences of which a token must name one.
sasl.oauthbearer.expected.issuer: Issuer that a token must name.
sasl.oauthbearer.jwks.endpoint.refresh.ms: How often the provider's keys are fetched again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms: Longest pause before a failed fetch of the keys is tried again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms: First pause before it is tried again.
sasl.oauthbearer.jwks.endpoint.url: Where the provider's keys are found.
sasl.oauthbearer.jwt.retriever.class: Class that fetches tokens.
sasl.oauthbearer.jwt.validator.class: Class that checks tokens.
sasl.oauthbearer.scope: Scope asked for when a token is fetched.
sasl.oauthbearer.scope.claim.name: Claim in which the scope stands.
sasl.oauthbearer.sub.claim.name: Claim in which the subject stands.
sasl.oauthbearer.token.endpoint.url: Where tokens are fetched.
sasl.server.callback.handler.class: Callback class of SASL servers.
sasl.server.max.receive.size: Largest SASL message before a client is known.
security.inter.broker.protocol: Protocol between brokers, where no listener is named for it.
security.providers: Java security providers; they have no meaning here.
server.max.startup.time.ms: Longest time a start may take.
share.coordinator.append.linger.ms: How long the share coordinator gathers writes; -1 adapts by itself.
share.coordinator.cached.buffer.max.bytes: Largest buffer the share coordinator keeps for reuse.
share.coordinator.cold.partition.snapshot.interval.ms: How often quiet share partitions get a snapshot.
share.coordinator.load.buffer.size: Batch size when share state is loaded.
share.coordinator.snapshot.update.records.per.snapshot: Updates of share state between two snapshots.
share.coordinator.state.topic.compression.codec: Codec of the share state topic, by number.
share.coordinator.state.topic.min.isr: In-sync replicas that the share state topic needs.
share.coordinator.state.topic.num.partitions: Partitions of the share state topic; must not change once it exists.
share.coordinator.state.topic.prune.interval.ms: How often old share state is removed.
share.coordinator.state.topic.replication.factor: Replicas of the share state topic.
share.coordinator.state.topic.segment.bytes: Segment size of the share state topic.
share.coordinator.threads: Threads of the share coordinator.
share.coordinator.write.timeout.ms: How long a write of share state waits for its replicas.
share.fetch.purgatory.purge.interval.requests: How many finished requests are kept in a purgatory before it is purged.
socket.connection.setup.timeout.max.ms: Longest time to set up a connection after several failures.
socket.connection.setup.timeout.ms: Time to set up a connection.
socket.listen.backlog.size: Connections that may wait to be accepted; Lograft uses 1024 unless the file sets it.
socket.receive.buffer.bytes: Receive buffer of sockets; -1 leaves it to the system.
socket.request.max.bytes: Largest request that is read.
socket.send.buffer.bytes: Send buffer of sockets; -1 leaves it to the system.
ssl.allow.dn.changes: Whether a new certificate may carry another distinguished name.
ssl.allow.san.changes: Whether a new certificate may carry other alternative names.
ssl.cipher.suites: Cipher suites that are allowed; empty allows the library's.
ssl.client.auth: Whether clients must, may or need not show a certificate.
ssl.enabled.protocols: TLS versions that are allowed.
ssl.endpoint.identification.algorithm: How host names are compared with certificates; empty does not compare.
ssl.engine.factory.class: Class that makes TLS engines.
ssl.key.password: Password of the private key.
ssl.keymanager.algorithm: Java's name for the way keys are chosen.
ssl.keystore.certificate.chain: Certificate chain as PEM text.
ssl.keystore.key: Private key as PEM text.
ssl.keystore.location: File with key and certificates.
ssl.keystore.password: Password of that file.
ssl.keystore.type: Format of that file.
ssl.principal.mapping.rules: Rules that turn certificate names into principals.
ssl.protocol: TLSv1.2 keeps connections that the node opens from using TLS 1.3.
ssl.provider: Java security provider for TLS; it has no meaning here.
ssl.secure.random.implementation: Java's source of randomness; it has no meaning here.
ssl.trustmanager.algorithm: Java's name for the way trust is checked.
ssl.truststore.certificates: Trusted certificates as PEM text.
ssl.truststore.location: File with trusted certificates.
ssl.truststore.password: Password of that file.
ssl.truststore.type: Format of that file.
telemetry.max.bytes: Largest telemetry push that is accepted.
transaction.abort.timed.out.transaction.cleanup.interval.ms: How often transactions beyond their timeout are aborted.
transaction.max.timeout.ms: Longest transaction timeout a producer may ask for.
transaction.partition.verification.enable: Whether a partition checks that it belongs to the transaction.
transaction.remove.expired.transaction.cleanup.interval.ms: How often expired transactional ids are removed.
transaction.state.log.load.buffer.size: Batch size when transaction state is loaded.
transaction.state.log.min.isr: In-sync replicas that the transaction topic needs.
transaction.state.log.num.partitions: Partitions of the transaction topic; must not change once it exists.
transaction.state.log.replication.factor: Replicas of the transaction topic.
transaction.state.log.segment.bytes: Segment size of the transaction topic.
transaction.two.phase.commit.enable: Whether transactions may take part in an outer two-phase commit.
transactional.id.expiration.ms: How long the state of an idle transactional id is kept.
unclean.leader.election.enable: Whether a replica outside the in-sync set may lead, losing records.
unclean.leader.election.interval.ms: How often such elections are looked for.
unstable.api.versions.enable: Whether versions of requests that may still change are offered.
unstable.feature.versions.enable: Whether feature levels that may still change are allowed.
follower.replication.throttled.rate: Most bytes a second that throttled followers fetch.
leader.replication.throttled.rate: Most bytes a second that throttled leaders send to followers.
replica.alter.log.dirs.io.max.bytes.per.second: Most bytes a second that moves between log dirs take.
auto.create.partitions.enable: Whether topics that are created automatically get the topic setting auto.create.partitions.max.
auto.create.partitions.max: The value that they get.
auto.rebalance.check.interval.ms: How often the controller checks whether replicas should move.
auto.rebalance.enable: Whether the controller moves replicas to a broker that has joined.
default.replication.mode: Replication mode of new topics that do not set replication.mode.
internal.topics.replication.mode: Replication mode of the internal topics.
lograft.client.telemetry: Whether clients learn that they can push metrics (KIP-714) also while no client-metrics subscription exists.
partition.raft.election.timeout.ms: How long a voter of a raft partition waits for a leader before it becomes a candidate.
partition.raft.fetch.timeout.ms: How long a follower of a raft partition waits for its leader before it becomes a candidate.
"""

BROKER_DOCS: Final[dict[str, str]] = {
    name: sentence for name, _, sentence in (line.partition(": ") for line in _TEXT.splitlines())
}
