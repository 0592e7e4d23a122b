#!/bin/sh
set -eu
make -j8 CC='golock run --store local --name cc --max 2 -- cc'
exec golock run --require-networked --name deploy-production --wait 30m --time-limit 20m -- ./deploy.sh production
