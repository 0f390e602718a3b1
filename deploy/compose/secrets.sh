#!/bin/sh
# Makes the certificate of a learner and the tokens of its containers for deploy/compose/tls.yml:
#
#   sudo LEARNER="$(command -v rollcast)" sh deploy/compose/secrets.sh HOST [FOLDER]
#
# HOST    the name by which other machines know this one, in the certificate next to `learner` and localhost
# FOLDER  a new folder in place of deploy/secrets, as ROLLCAST_SECRETS
#
# It needs `rollcast` with the extra `certs`, which LEARNER names because sudo does not search a virtual environment, or
# LEARNER='docker run ...' that runs it; and root for the owners: each file can be read by the user of one container only. Run it
# again to add what is missing, and after `certs renew` and `certs token`, whose files belong to root and which need authority/.
set -eu
umask 077
host="$1"
folder="${2:-deploy/secrets}"
learner="${LEARNER:-rollcast}"

made=
[ -e "$folder/learner/ca.pem" ] || made="$($learner certs init "$folder/learner" --host "$host" --host learner)"
for service in actor prometheus; do
    role=actor
    [ "$service" = actor ] || role=viewer
    mkdir -p "$folder/$service"
    [ -e "$folder/$service/token" ] ||
        $learner certs token "$folder/learner" "$service" --role "$role" --output "$folder/$service/token"
    cp "$folder/learner/ca.pem" "$folder/$service/ca.pem"
done
# What actors require of Prometheus, and of nobody else; it opens nothing but their metrics.
[ -e "$folder/actor/metrics_token" ] || head -c 33 /dev/urandom | base64 >"$folder/actor/metrics_token"
cp "$folder/actor/metrics_token" "$folder/prometheus/metrics_token"
# Only `certs client` and `certs renew` need the authority's key; no container gets it.
[ ! -e "$folder/learner/authority" ] || mv "$folder/learner/authority" "$folder/authority"
chown -R 10001:10001 "$folder/learner" "$folder/actor"
chown -R 65534:65534 "$folder/prometheus"
if [ -n "$made" ]; then # its last line is the join code; the others are for a learner without containers
    echo "keep $folder/authority elsewhere: only \`certs client\` and \`certs renew\` need it"
    echo "on other machines: rollcast join certs, then rollcast act gym --env ID --certs certs"
    echo "The join code of actors contains their token; treat it like a password:"
    echo "$made" | tail -n 1
fi
