#!/bin/sh
# Starts Grafana, as `start.sh COMMAND`. The first start makes a password for `admin`, which only Grafana's user can read:
#
#   docker compose exec grafana cat /var/lib/grafana/admin_password
#
# A Grafana that has a database has a password already, which an environment variable would not change.
set -eu
folder="${GF_PATHS_DATA:-/var/lib/grafana}"
password="$folder/admin_password"
if [ ! -e "$password" ] && [ ! -e "$folder/grafana.db" ]; then
    (umask 077; head -c 18 /dev/urandom | base64 >"$password.new")
    mv "$password.new" "$password"    # whole, or not there
    echo "made a password for admin: docker compose exec grafana cat $password"
fi
if [ -e "$password" ]; then
    export GF_SECURITY_ADMIN_PASSWORD__FILE="$password"
fi
exec "$@"
