#!/bin/sh
# Makes the stores in this folder with Java's keytool: a node's key store whose chain has two
# certificates, a trust store, and the same key store in Java's old format.
set -eu
cd "$(dirname "$0")"
rm -f ./*.p12 ./*.jks
dates="-startdate -6y -validity 36500"
key="-keyalg EC -groupname secp256r1 -storepass changeit $dates"
keytool -genkeypair $key -alias ca -dname CN=ca -ext bc:c -keystore ca.p12
keytool -genkeypair $key -alias node -dname CN=localhost -keystore keystore.p12
keytool -certreq -alias node -storepass changeit -keystore keystore.p12 |
    keytool -gencert -alias ca -storepass changeit -keystore ca.p12 -rfc $dates \
        -ext san=dns:localhost,ip:127.0.0.1 >node.pem
keytool -exportcert -alias ca -storepass changeit -keystore ca.p12 -rfc >ca.pem
keytool -importcert -noprompt -alias caroot -file ca.pem -storepass changeit -keystore keystore.p12
keytool -importcert -alias node -file node.pem -storepass changeit -keystore keystore.p12
keytool -importcert -noprompt -alias caroot -file ca.pem -storepass changeit -keystore truststore.p12
keytool -importkeystore -srckeystore keystore.p12 -srcstorepass changeit \
    -destkeystore keystore.jks -deststoretype JKS -deststorepass changeit
rm ca.p12 ca.pem node.pem
