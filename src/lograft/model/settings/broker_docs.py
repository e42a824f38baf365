# ruff: noqa: E501  (a setting is a line)
"""One sentence about every setting of a node. Loaded only when a request includes documentation."""

from typing import Final

_TEXT: Final = """\
add.partitions.to.txn.retry.backoff.max.ms: Longest time for which the broker retries adding partitions to a transaction while the previous one completes.
add.partitions.to.txn.retry.backoff.ms: Pause between retries of adding partitions to a transaction.
advertised.listeners: Addresses that clients and other nodes use to connect; defaults to listeners.
alter.config.policy.class.name: Policy class that validates config changes.
alter.log.dirs.replication.quota.window.num: Samples kept for the quota of moves between log dirs.
alter.log.dirs.replication.quota.window.size.seconds: Length of each sample of the quota of moves between log dirs.
authorizer.class.name: Class that authorizes requests; empty allows everything. Only org.apache.kafka.metadata.authorizer.StandardAuthorizer is built in; Java classes are not loaded.
auto.create.topics.enable: Whether requests for a topic that does not exist create it.
auto.leader.rebalance.enable: Whether the controller moves leadership back to the preferred replicas.
background.threads: Worker threads for background tasks.
broker.heartbeat.interval.ms: How often a broker sends heartbeats to the controller.
broker.id: Former name of node.id.
broker.rack: Rack or zone of this broker, used to spread replicas.
broker.session.timeout.ms: How long the controller waits for a heartbeat before it fences a broker.
client.quota.callback.class: Class that computes quotas.
compression.gzip.level: Level used when the broker itself compresses with gzip.
compression.lz4.level: Level used when the broker itself compresses with lz4.
compression.type: Codec of stored batches; 'producer' keeps what the producer chose.
compression.zstd.level: Level used when the broker itself compresses with zstd.
config.providers: Names of the providers that resolve variables in the configuration file: file, directory and environment.
connection.failed.authentication.delay.ms: How long the response to a failed authentication is delayed.
connections.max.idle.ms: Connections that are idle for this long are closed.
connections.max.reauth.ms: Longest lifetime of a SASL session before the client must reauthenticate; 0 is no limit.
controlled.shutdown.enable: Whether a stopping broker first moves leadership to other brokers.
controller.listener.names: Names of the listeners that controllers use, the preferred listener first.
controller.performance.always.log.threshold.ms: Controller events slower than this are always logged.
controller.performance.sample.period.ms: How often the slowest controller event is logged.
controller.quorum.append.linger.ms: How long the quorum leader waits to batch records into one write.
controller.quorum.auto.join.enable: Whether a new controller adds itself to a dynamic quorum.
controller.quorum.bootstrap.servers: Addresses where the controllers can be found.
controller.quorum.election.backoff.max.ms: Longest random pause before a candidate starts another election.
controller.quorum.election.timeout.ms: How long a candidate waits for votes.
controller.quorum.fetch.max.bytes: Maximum bytes of metadata in one fetch of the quorum.
controller.quorum.fetch.snapshot.max.bytes: Maximum bytes of a snapshot in one fetch of the quorum.
controller.quorum.fetch.timeout.ms: A voter that cannot fetch from the leader for this long becomes a candidate.
controller.quorum.request.timeout.ms: How long a request within the quorum may take.
controller.quorum.retry.backoff.ms: Pause before a failed request within the quorum is retried.
controller.quorum.voters: Static voters as id@host:port; empty when the quorum is dynamic.
controller.quota.window.num: Samples kept for the quota of controller mutations.
controller.quota.window.size.seconds: Length of each sample of the quota of controller mutations.
controller.socket.timeout.ms: How long requests to the controller may take.
cordoned.log.dirs: Log dirs in which no new partitions are placed.
create.topic.policy.class.name: Policy class that validates new topics.
default.replication.factor: Replication factor of topics that are created without one.
delegation.token.expiry.check.interval.ms: How often expired delegation tokens are removed.
delegation.token.expiry.time.ms: How long a delegation token is valid before it must be renewed.
delegation.token.max.lifetime.ms: Maximum lifetime of a delegation token, with renewals.
delegation.token.secret.key: Secret that signs delegation tokens; must be the same on all brokers.
delete.records.purgatory.purge.interval.requests: How many finished requests are kept in the DeleteRecords purgatory before it is purged.
delete.topic.enable: Whether topics can be deleted.
early.start.listeners: Listeners that open before the authorizer is ready.
fetch.max.bytes: Maximum bytes in one fetch response.
fetch.purgatory.purge.interval.requests: How many finished requests are kept in the Fetch purgatory before it is purged.
follower.fetch.last.tiered.offset.enable: Whether an empty follower starts at the last tiered offset.
group.consumer.assignment.interval.ms: Shortest time between two assignments of a consumer group.
group.consumer.assignors: Server-side assignors for consumer groups, the default first.
group.consumer.heartbeat.interval.ms: Heartbeat interval given to members of consumer groups.
group.consumer.max.assignment.interval.ms: Largest assignment interval a consumer group may set.
group.consumer.max.heartbeat.interval.ms: Largest heartbeat interval a consumer group may set.
group.consumer.max.session.timeout.ms: Largest session timeout a consumer group may set.
group.consumer.max.size: Maximum number of members of a consumer group.
group.consumer.migration.policy: In which directions groups may change between the classic and the consumer protocol.
group.consumer.min.assignment.interval.ms: Smallest assignment interval a consumer group may set.
group.consumer.min.heartbeat.interval.ms: Smallest heartbeat interval a consumer group may set.
group.consumer.min.session.timeout.ms: Smallest session timeout a consumer group may set.
group.consumer.regex.refresh.interval.ms: How often regular expression subscriptions are resolved again.
group.consumer.session.timeout.ms: A member that sends no heartbeat for this long is removed from its consumer group.
group.coordinator.append.linger.ms: How long the group coordinator waits to batch writes; -1 adapts to the load.
group.coordinator.background.threads: Workers for long-running tasks of the group coordinator.
group.coordinator.cached.buffer.max.bytes: Largest buffer the group coordinator keeps for reuse.
group.coordinator.rebalance.protocols: Group protocols that are allowed.
group.coordinator.threads: Threads of the group coordinator.
group.initial.rebalance.delay.ms: How long a new classic group waits for more members.
group.max.session.timeout.ms: Largest session timeout of a classic consumer.
group.max.size: Maximum number of members of a classic group.
group.min.session.timeout.ms: Smallest session timeout of a classic consumer.
group.share.assignment.interval.ms: Shortest time between two assignments of a share group.
group.share.assignors: Assignors for share groups.
group.share.delivery.count.limit: How often delivery of a record is attempted before the record is archived.
group.share.heartbeat.interval.ms: Heartbeat interval given to members of share groups.
group.share.initialize.retry.interval.ms: Pause before the initialization of a share partition is retried.
group.share.max.assignment.interval.ms: Largest assignment interval a share group may set.
group.share.max.delivery.count.limit: Largest delivery limit a share group may set.
group.share.max.heartbeat.interval.ms: Largest heartbeat interval a share group may set.
group.share.max.partition.max.record.locks: Largest number of locks per partition a share group may set.
group.share.max.record.lock.duration.ms: Longest record lock duration that a share group may set.
group.share.max.session.timeout.ms: Largest session timeout a share group may set.
group.share.max.share.sessions: Maximum number of share sessions of a broker.
group.share.max.size: Maximum number of members of a share group.
group.share.min.assignment.interval.ms: Smallest assignment interval a share group may set.
group.share.min.delivery.count.limit: Smallest delivery limit a share group may set.
group.share.min.heartbeat.interval.ms: Smallest heartbeat interval a share group may set.
group.share.min.partition.max.record.locks: Smallest number of locks per partition a share group may set.
group.share.min.record.lock.duration.ms: Shortest record lock duration that a share group may set.
group.share.min.session.timeout.ms: Smallest session timeout a share group may set.
group.share.partition.max.record.locks: Maximum number of locked records of a partition.
group.share.persister.class.name: Class that persists share-group state.
group.share.record.lock.duration.ms: How long a record is locked for a member of a share group.
group.share.session.timeout.ms: A member that sends no heartbeat for this long is removed from its share group.
group.streams.assignment.interval.ms: Shortest time between two assignments of a streams group.
group.streams.heartbeat.interval.ms: Heartbeat interval given to members of streams groups.
group.streams.initial.rebalance.delay.ms: How long a new streams group waits for more members.
group.streams.max.assignment.interval.ms: Largest assignment interval a streams group may set.
group.streams.max.heartbeat.interval.ms: Largest heartbeat interval a streams group may set.
group.streams.max.session.timeout.ms: Largest session timeout a streams group may set.
group.streams.max.size: Maximum number of members of a streams group.
group.streams.max.standby.replicas: Maximum number of standby replicas that a streams group may set.
group.streams.min.assignment.interval.ms: Smallest assignment interval a streams group may set.
group.streams.min.heartbeat.interval.ms: Smallest heartbeat interval a streams group may set.
group.streams.min.session.timeout.ms: Smallest session timeout a streams group may set.
group.streams.num.standby.replicas: Standby replicas of each stateful task.
group.streams.session.timeout.ms: A member that sends no heartbeat for this long is removed from its streams group.
initial.broker.registration.timeout.ms: How long a starting broker tries to register before it exits.
inter.broker.listener.name: Listener for communication between brokers.
internal.metadata.delete.delay.millis: How long deleted files of the metadata log stay on disk.
internal.metadata.log.segment.bytes: Segment size of the metadata log, for tests.
internal.metadata.max.batch.size.in.bytes: Largest batch of the metadata log.
kafka.metrics.polling.interval.secs: Polling interval of kafka.metrics.reporters.
kafka.metrics.reporters: Reporter classes for Yammer metrics.
leader.imbalance.check.interval.seconds: How often the controller checks whether leaders should move back to the preferred replicas.
listener.security.protocol.map: Security protocol of each listener, as NAME:PROTOCOL pairs.
listeners: Addresses to listen on, as NAME://host:port.
log.cleaner.backoff.ms: How long the cleaner sleeps when no log needs compaction.
log.cleaner.dedupe.buffer.size: Memory for deduplication of keys, for all cleaner threads together.
log.cleaner.delete.retention.ms: How long tombstones stay after compaction.
log.cleaner.enable: Whether logs are compacted.
log.cleaner.io.buffer.load.factor: How full the deduplication buffer may become.
log.cleaner.io.buffer.size: Memory for I/O buffers, for all cleaner threads together.
log.cleaner.io.max.bytes.per.second: Maximum rate of the cleaner's reads and writes together, in bytes per second; 0 stops the cleaner.
log.cleaner.max.compaction.lag.ms: Longest time a record may stay uncompacted.
log.cleaner.min.cleanable.ratio: Ratio of dirty log to total log at which a log is compacted.
log.cleaner.min.compaction.lag.ms: Shortest time a record stays uncompacted.
log.cleaner.threads: Workers that compact logs.
log.cleanup.policy: How old segments are treated: delete, compact, both or neither.
log.dir: Log directory, used if log.dirs is not set.
log.dir.failure.timeout.ms: A broker stops if it cannot report a failed log dir with leader replicas to the controller within this time.
log.dirs: Log directories; new partitions are placed in the least loaded.
log.flush.interval.messages: Number of records after which a log is flushed to disk.
log.flush.interval.ms: Time after which new records are flushed to disk.
log.flush.offset.checkpoint.interval.ms: How often the recovery points are checkpointed.
log.flush.scheduler.interval.ms: How often the flusher checks whether logs must be flushed.
log.flush.start.offset.checkpoint.interval.ms: How often log start offsets are checkpointed.
log.index.interval.bytes: Bytes of log between two entries of the offset index.
log.index.size.max.bytes: Maximum size of an index file.
log.initial.task.delay.ms: Delay after startup before retention, flush and checkpoint tasks begin.
log.local.retention.bytes: Size kept locally when older segments are tiered; -2 follows log.retention.bytes.
log.local.retention.ms: Time kept locally when older segments are tiered; -2 follows log.retention.ms.
log.message.timestamp.after.max.ms: How far in the future a record's timestamp may be.
log.message.timestamp.before.max.ms: How far in the past a record's timestamp may be.
log.message.timestamp.type: Whether records keep the producer's timestamp (CreateTime) or get the broker's (LogAppendTime).
log.preallocate: Whether disk space for a whole segment is allocated when it is created; the unused rest is released when it is rolled.
log.retention.bytes: Size of a partition above which old segments are deleted; -1 is no limit.
log.retention.check.interval.ms: How often retention is applied.
log.retention.hours: Age at which segments are deleted, in hours; used if neither log.retention.ms nor log.retention.minutes is set.
log.retention.minutes: Age at which segments are deleted, in minutes; overrides log.retention.hours.
log.retention.ms: Age at which segments are deleted, in milliseconds; -1 is no limit; overrides log.retention.minutes and log.retention.hours.
log.roll.hours: Age at which a new segment is rolled, in hours.
log.roll.jitter.hours: Maximum random jitter subtracted from the age at which a segment is rolled, in hours.
log.roll.jitter.ms: Maximum random jitter subtracted from the age at which a segment is rolled, in milliseconds; overrides log.roll.jitter.hours.
log.roll.ms: Age at which a new segment is rolled, in milliseconds; overrides log.roll.hours.
log.segment.bytes: Maximum size of a segment.
log.segment.delete.delay.ms: How long deleted segment files stay on disk.
max.connection.creation.rate: Maximum rate of new connections, per second.
max.connections: Maximum number of connections of the broker.
max.connections.per.ip: Maximum number of connections from one IP address.
max.connections.per.ip.overrides: Limits that override max.connections.per.ip, as host:count pairs.
max.incremental.fetch.session.cache.slots: Maximum number of incremental fetch sessions.
max.request.partition.size.limit: Maximum number of partitions in one DescribeTopicPartitions response.
message.max.bytes: Maximum size of a record batch.
metadata.log.dir: Directory of the metadata log; defaults to the first of log.dirs.
metadata.log.max.record.bytes.between.snapshots: Bytes of new metadata after which a snapshot is written.
metadata.log.max.snapshot.interval.ms: Longest time between two snapshots of changed metadata; 0 is no limit.
metadata.log.segment.bytes: Segment size of the metadata log.
metadata.log.segment.ms: Segment age of the metadata log.
metadata.max.idle.interval.ms: How often the idle leader of a quorum of several voters writes a no-op record; 0 is never.
metadata.max.retention.bytes: Total size of metadata log and snapshots above which old ones are deleted.
metadata.max.retention.ms: Age at which metadata log segments and snapshots are deleted.
metric.reporters: Reporter classes for metrics.
metrics.num.samples: Samples kept for each metric.
metrics.recording.level: How detailed metrics are.
metrics.sample.window.ms: Length of one sample.
min.insync.replicas: Minimum number of in-sync replicas, including the leader, for a write with acks=all to succeed.
node.id: Id of this node, unique in the cluster.
num.io.threads: Threads that process requests.
num.network.threads: Threads that read requests and write responses.
num.partitions: Number of partitions of topics that are created without one.
num.recovery.threads.per.data.dir: Threads per log dir for recovery at startup and flushing at shutdown.
num.replica.alter.log.dirs.threads: Workers that move replicas between log dirs.
num.replica.fetchers: Fetch streams to each other broker.
offset.metadata.max.bytes: Maximum size of the metadata of a committed offset.
offsets.commit.timeout.ms: How long an offset commit waits for its replicas.
offsets.load.buffer.size: Batch size when committed offsets are loaded.
offsets.retention.check.interval.ms: How often expired offsets are removed.
offsets.retention.minutes: How long offsets of an empty group are kept.
offsets.topic.compression.codec: Codec of the offsets topic, by number.
offsets.topic.num.partitions: Partitions of the offsets topic; must not change once it exists.
offsets.topic.replication.factor: Replicas of the offsets topic.
offsets.topic.segment.bytes: Segment size of the offsets topic.
principal.builder.class: Class that builds the principal of a connection.
process.roles: Roles of this node: broker, controller, or both.
producer.id.expiration.check.interval.ms: How often expired producer ids are removed.
producer.id.expiration.ms: How long the state of an idle producer is kept.
producer.purgatory.purge.interval.requests: How many finished requests are kept in the Produce purgatory before it is purged.
queued.max.request.bytes: Maximum bytes of queued requests before the broker stops reading; -1 is no limit.
queued.max.requests: Maximum number of queued requests before the broker stops reading.
quota.window.num: Samples kept for client quotas.
quota.window.size.seconds: Length of each sample of client quotas.
remote.fetch.max.wait.ms: How long a fetch waits for tiered data.
remote.list.offsets.request.timeout.ms: How long ListOffsets waits for tiered data.
remote.log.index.file.cache.total.size.bytes: Space for indexes of tiered segments.
remote.log.index.file.cache.ttl.ms: How long an unused index of a tiered segment is cached.
remote.log.manager.copier.thread.pool.size: Threads that copy segments to remote storage.
remote.log.manager.copy.max.bytes.per.second: Maximum rate of copies to remote storage, in bytes per second.
remote.log.manager.copy.quota.window.num: Samples kept for the quota of copies to remote storage.
remote.log.manager.copy.quota.window.size.seconds: Length of each sample of the quota of copies to remote storage.
remote.log.manager.expiration.thread.pool.size: Threads that delete expired tiered segments.
remote.log.manager.fetch.max.bytes.per.second: Maximum rate of reads from remote storage, in bytes per second.
remote.log.manager.fetch.quota.window.num: Samples kept for the quota of reads from remote storage.
remote.log.manager.fetch.quota.window.size.seconds: Length of each sample of the quota of reads from remote storage.
remote.log.manager.follower.thread.pool.size: Threads for tiered partitions that this broker follows.
remote.log.manager.task.interval.ms: How often remote storage tasks run.
remote.log.manager.task.retry.backoff.max.ms: Longest pause before a failed task is retried.
remote.log.manager.task.retry.backoff.ms: First pause before a failed task is retried.
remote.log.manager.task.retry.jitter: Random jitter of the pause before a failed remote storage task is retried.
remote.log.manager.thread.pool.size: Threads for remote storage tasks.
remote.log.metadata.custom.metadata.max.bytes: Maximum size of the custom metadata of a tiered segment.
remote.log.metadata.manager.class.name: Class that manages the metadata of tiered segments.
remote.log.metadata.manager.class.path: Class path of remote.log.metadata.manager.class.name.
remote.log.metadata.manager.impl.prefix: Prefix of the settings of remote.log.metadata.manager.class.name.
remote.log.metadata.manager.listener.name: Listener that the remote log metadata manager uses to connect to brokers.
remote.log.reader.max.pending.tasks: Maximum number of pending reads from remote storage.
remote.log.reader.threads: Threads that read from remote storage.
remote.log.storage.manager.class.name: Class that stores tiered segments.
remote.log.storage.manager.class.path: Class path of remote.log.storage.manager.class.name.
remote.log.storage.manager.impl.prefix: Prefix of the settings of remote.log.storage.manager.class.name.
remote.log.storage.system.enable: Whether tiered storage is enabled.
replica.fetch.backoff.ms: Pause after a failed fetch from a leader.
replica.fetch.max.bytes: Maximum bytes of a partition in one fetch from a leader.
replica.fetch.min.bytes: Minimum bytes in a fetch response to a follower.
replica.fetch.response.max.bytes: Maximum bytes in one fetch response to a follower.
replica.fetch.wait.max.ms: How long a leader waits for replica.fetch.min.bytes.
replica.high.watermark.checkpoint.interval.ms: How often high watermarks are checkpointed.
replica.lag.time.max.ms: A follower that has not caught up for this long is removed from the ISR.
replica.selector.class: How the preferred read replica of a consumer is chosen.
replica.socket.receive.buffer.bytes: Receive buffer of connections to leaders.
replica.socket.timeout.ms: How long a request to a leader may take.
replication.quota.window.num: Samples kept for replication quotas.
replication.quota.window.size.seconds: Length of each sample of replication quotas.
request.timeout.ms: How long a request to another node may take.
sasl.client.callback.handler.class: Callback handler class of SASL clients.
sasl.enabled.mechanisms: SASL mechanisms that clients may use.
sasl.jaas.config: JAAS login context of a SASL listener.
sasl.kerberos.kinit.cmd: Path of kinit.
sasl.kerberos.min.time.before.relogin: Minimum time between Kerberos logins.
sasl.kerberos.principal.to.local.rules: Rules that map Kerberos principals to short names.
sasl.kerberos.service.name: Kerberos service name of the brokers, the first part of their principals.
sasl.kerberos.ticket.renew.jitter: Random jitter of the renewal time of a ticket.
sasl.kerberos.ticket.renew.window.factor: Fraction of a ticket's lifetime after which it is renewed.
sasl.login.callback.handler.class: Callback handler class of logins.
sasl.login.class: Login class.
sasl.login.connect.timeout.ms: How long connecting to the identity provider may take.
sasl.login.read.timeout.ms: How long the identity provider may take to respond.
sasl.login.refresh.buffer.seconds: A token is refreshed this long before it expires.
sasl.login.refresh.min.period.seconds: Minimum time between two refreshes of a token.
sasl.login.refresh.window.factor: Fraction of a token's lifetime after which it is refreshed.
sasl.login.refresh.window.jitter: Random jitter of the time at which a token is refreshed.
sasl.login.retry.backoff.max.ms: Longest pause before a failed login is retried.
sasl.login.retry.backoff.ms: First pause before a failed login is retried.
sasl.mechanism.controller.protocol: SASL mechanism for connections to controllers.
sasl.mechanism.inter.broker.protocol: SASL mechanism between brokers.
sasl.oauthbearer.assertion.algorithm: Algorithm that signs assertions.
sasl.oauthbearer.assertion.claim.aud: Audience claim of assertions.
sasl.oauthbearer.assertion.claim.exp.seconds: Lifetime of an assertion.
sasl.oauthbearer.assertion.claim.iss: Issuer claim of assertions.
sasl.oauthbearer.assertion.claim.jti.include: Whether assertions carry a unique id.
sasl.oauthbearer.assertion.claim.nbf.seconds: How long before the current time an assertion becomes valid.
sasl.oauthbearer.assertion.claim.sub: Subject claim of assertions.
sasl.oauthbearer.assertion.file: File with a pre-generated assertion.
sasl.oauthbearer.assertion.private.key.file: File with the key that signs assertions.
sasl.oauthbearer.assertion.private.key.passphrase: Passphrase of the key that signs assertions.
sasl.oauthbearer.assertion.template.file: File with static claims of assertions.
sasl.oauthbearer.client.credentials.client.id: Client id for the identity provider.
sasl.oauthbearer.client.credentials.client.secret: Client secret for the identity provider.
sasl.oauthbearer.clock.skew.seconds: Tolerated difference between clocks.
sasl.oauthbearer.expected.audience: Audiences, one of which a token must have.
sasl.oauthbearer.expected.issuer: Issuer that a token must have.
sasl.oauthbearer.jwks.endpoint.refresh.ms: How often the provider's keys are refreshed.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms: Longest pause before a failed request for the keys is retried.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms: First pause before a failed request for the provider's keys is retried.
sasl.oauthbearer.jwks.endpoint.url: URL of the provider's keys.
sasl.oauthbearer.jwt.retriever.class: Class that retrieves tokens.
sasl.oauthbearer.jwt.validator.class: Class that validates tokens.
sasl.oauthbearer.scope: Scope of requested tokens.
sasl.oauthbearer.scope.claim.name: Name of the scope claim.
sasl.oauthbearer.sub.claim.name: Name of the subject claim.
sasl.oauthbearer.token.endpoint.url: URL from which tokens are retrieved.
sasl.server.callback.handler.class: Callback handler class of SASL servers.
sasl.server.max.receive.size: Maximum size of SASL messages before a client is authenticated.
security.inter.broker.protocol: Security protocol between brokers, if inter.broker.listener.name is not set.
security.providers: Java security providers; not used by Lograft.
server.max.startup.time.ms: Maximum time for startup.
share.coordinator.append.linger.ms: How long the share coordinator waits to batch writes; -1 adapts to the load.
share.coordinator.cached.buffer.max.bytes: Largest buffer the share coordinator keeps for reuse.
share.coordinator.cold.partition.snapshot.interval.ms: How often snapshots of cold share partitions are written.
share.coordinator.load.buffer.size: Batch size when share state is loaded.
share.coordinator.snapshot.update.records.per.snapshot: Updates of share state between two snapshots.
share.coordinator.state.topic.compression.codec: Codec of the share state topic, by number.
share.coordinator.state.topic.min.isr: min.insync.replicas of the share state topic.
share.coordinator.state.topic.num.partitions: Partitions of the share state topic; must not change once it exists.
share.coordinator.state.topic.prune.interval.ms: How often old share-group state is deleted.
share.coordinator.state.topic.replication.factor: Replicas of the share state topic.
share.coordinator.state.topic.segment.bytes: Segment size of the share state topic.
share.coordinator.threads: Threads of the share coordinator.
share.coordinator.write.timeout.ms: How long a write of share state waits for its replicas.
share.fetch.purgatory.purge.interval.requests: How many finished requests are kept in the ShareFetch purgatory before it is purged.
socket.connection.setup.timeout.max.ms: Longest time to set up a connection after several failures.
socket.connection.setup.timeout.ms: Time to set up a connection.
socket.listen.backlog.size: Connections that may wait to be accepted; Lograft uses 1024 unless the file sets it.
socket.receive.buffer.bytes: Receive buffer of sockets; -1 uses the operating system's default.
socket.request.max.bytes: Maximum size of a request.
socket.send.buffer.bytes: Send buffer of sockets; -1 uses the operating system's default.
ssl.allow.dn.changes: Whether a new certificate may have another distinguished name.
ssl.allow.san.changes: Whether a new certificate may have other subject alternative names.
ssl.cipher.suites: Enabled cipher suites; empty enables the defaults of the TLS library.
ssl.client.auth: Whether client certificates are required, requested or not used.
ssl.enabled.protocols: Enabled TLS versions.
ssl.endpoint.identification.algorithm: Algorithm that checks host names against certificates; empty disables the check.
ssl.engine.factory.class: Class that creates TLS engines.
ssl.key.password: Password of the private key.
ssl.keymanager.algorithm: Algorithm of Java's key manager factory.
ssl.keystore.certificate.chain: Certificate chain as PEM text.
ssl.keystore.key: Private key as PEM text.
ssl.keystore.location: File with key and certificates.
ssl.keystore.password: Password of the keystore.
ssl.keystore.type: Format of the keystore.
ssl.principal.mapping.rules: Rules that map distinguished names of certificates to principals.
ssl.protocol: TLSv1.2 prevents connections that the node opens from using TLS 1.3.
ssl.provider: Java security provider for TLS; not used by Lograft.
ssl.secure.random.implementation: Java's random number generator; not used by Lograft.
ssl.trustmanager.algorithm: Algorithm of Java's trust manager factory.
ssl.truststore.certificates: Trusted certificates as PEM text.
ssl.truststore.location: File with trusted certificates.
ssl.truststore.password: Password of the truststore.
ssl.truststore.type: Format of the truststore.
telemetry.max.bytes: Maximum size of a telemetry push.
transaction.abort.timed.out.transaction.cleanup.interval.ms: How often timed-out transactions are aborted.
transaction.max.timeout.ms: Maximum transaction timeout that a producer may set.
transaction.partition.verification.enable: Whether the broker verifies that a partition is part of the transaction before it appends.
transaction.remove.expired.transaction.cleanup.interval.ms: How often expired transactional ids are removed.
transaction.state.log.load.buffer.size: Batch size when transaction state is loaded.
transaction.state.log.min.isr: min.insync.replicas of the transaction topic.
transaction.state.log.num.partitions: Partitions of the transaction topic; must not change once it exists.
transaction.state.log.replication.factor: Replicas of the transaction topic.
transaction.state.log.segment.bytes: Segment size of the transaction topic.
transaction.two.phase.commit.enable: Whether transactions may take part in an external two-phase commit.
transactional.id.expiration.ms: How long the state of an unused transactional id is kept.
unclean.leader.election.enable: Whether a replica that is not in the ISR may become leader, at the risk of losing records.
unclean.leader.election.interval.ms: How often the controller checks for partitions that need an unclean election.
unstable.api.versions.enable: Whether unstable API versions are advertised.
unstable.feature.versions.enable: Whether unstable feature levels are allowed.
follower.replication.throttled.rate: Maximum rate of throttled followers, in bytes per second.
leader.replication.throttled.rate: Maximum rate of throttled leaders, in bytes per second.
replica.alter.log.dirs.io.max.bytes.per.second: Maximum rate of replica moves between log dirs, in bytes per second.
auto.create.partitions.enable: Whether topics that are created automatically get the topic setting auto.create.partitions.max.
auto.create.partitions.max: Value of the topic setting auto.create.partitions.max for topics that are created automatically.
auto.rebalance.check.interval.ms: How often the controller checks whether replicas should move.
auto.rebalance.enable: Whether the controller moves replicas to a broker that has joined.
default.replication.mode: Replication mode of new topics that do not set replication.mode.
delegation.token.master.key: The name of delegation.token.secret.key before Kafka 4; used if that is not set.
internal.topics.replication.mode: Replication mode of the internal topics.
lograft.authentication.timeout.ms: Time within which a client of a SASL listener must authenticate after it has connected, including the TLS handshake; otherwise its connection is closed.
lograft.oauthbearer.allowed.urls: The URLs that sasl.oauthbearer.jwks.endpoint.url may have, exactly as they are written there. The node reads no others. Takes the place of Kafka's system property org.apache.kafka.sasl.oauthbearer.allowed.urls.
lograft.oauthbearer.any.audience: Whether listeners without sasl.oauthbearer.expected.audience accept tokens that were issued for other services. Without either, the node does not start.
lograft.oauthbearer.any.issuer: Whether listeners without sasl.oauthbearer.expected.issuer accept tokens of any issuer, if their signature is right. Without either, the node does not start.
lograft.oauthbearer.unsecured.tokens.enable: Whether a listener whose sasl.server.callback.handler.class is Kafka's unsecured handler accepts tokens without a signature. Anyone can write such a token, so use it for tests only.
lograft.ssl.crl.location: File with certificate revocation lists in PEM or DER, for the certificates of clients and nodes. If it is set, every authority that issues such certificates needs a current list in it.
lograft.unauthenticated.connections.max: Maximum number of connections of a SASL listener that have not authenticated yet. When it is reached, the oldest of them is closed for each new connection.
lograft.http.authentication.enable: Whether clients of lograft.http.listeners authenticate: with Basic as users of PLAIN or SCRAM, or with Bearer and an OAUTHBEARER token, as enabled by sasl.enabled.mechanisms, also with the prefix listener.name.http. They need the operation Describe on the cluster. The path /health/live and the status of /health/ready need no authentication.
lograft.http.listeners: URLs on which the node serves metrics and health checks, such as http://localhost:8082; empty for none. Addresses that are not loopback addresses need lograft.http.authentication.enable. For https, the ssl settings apply, also with the prefix listener.name.http.
lograft.log.format: Format of the messages that the node writes to standard error: text, or json for one JSON object in each line, with the fields time (UTC), level, logger, message, node_id, and exception if there is one.
lograft.client.telemetry: Whether the telemetry APIs (KIP-714) are advertised to clients even if no client-metrics subscription exists.
lograft.metrics.groups.max: Number of groups with series of their own in the metrics: those with the largest lag. All others are added up under other.
lograft.metrics.kafka.exporter.enable: Whether the metrics include the series of kafka_exporter, under its names.
lograft.metrics.partitions.max: Maximum number of partitions, and of pairs of group and partition, that have their own series in the metrics of this broker; the others have no series.
lograft.metrics.topics.max: Number of topics with series of their own in the metrics: those with the most traffic. All others are added up under other.
lograft.otlp.endpoint: URL of an OpenTelemetry collector to which the node sends its metrics as OTLP over HTTP, such as http://localhost:4318; empty: it sends nothing. The node adds /v1/metrics or /v1/traces. For https, the system's certificate authorities are trusted.
lograft.otlp.headers: HTTP headers of the requests to the collector, such as authorization=Bearer abc, separated by commas.
lograft.otlp.metrics.interval.ms: Time between two exports of all metrics to the OpenTelemetry collector; 0: metrics are not exported.
lograft.otlp.traces.compressed.enable: Whether compressed batches are decompressed to find the trace contexts of their records. Otherwise, records in compressed batches have no spans.
lograft.otlp.traces.enable: Whether the node sends spans to the OpenTelemetry collector when it appends, replicates and delivers records that have a sampled W3C trace context in their header traceparent. Produce and Fetch requests then take the general path, which is slower.
lograft.otlp.traces.ratio: The share of the sampled traces for which the node sends spans, chosen by their trace id, so that all nodes choose the same.
lograft.slow.request.ms: A request that takes at least this time is written to the log, with the time of each stage; -1 disables it. Waits that the client asked for, such as those of a Fetch for records, do not count. While it is enabled, every request is measured.
partition.raft.election.timeout.ms: How long a voter of a raft partition waits for a leader before it becomes a candidate.
partition.raft.fetch.timeout.ms: How long a follower of a raft partition waits for its leader before it becomes a candidate.
"""

BROKER_DOCS: Final[dict[str, str]] = {
    name: sentence for name, _, sentence in (line.partition(": ") for line in _TEXT.splitlines())
}
