#!/bin/sh
# environments.sh take|give: one of three test environments for all jobs of a pipeline,
# on any machine. "take" writes the slot's ID to the file "environment", which the pipeline
# passes on as an artifact, and prints the slot number. "give" releases it. If the pipeline
# dies, the environment is free after two hours.
set -eu
case $1 in
take)
	golock acquire --name environments --max 3 --wait 1h --ttl 2h --for none >environment
	# The slot number, from 0 to 2, is the number of the environment.
	golock ls environments --json | tr -d ' \n' | sed "s/.*\"id\":\"$(cat environment)\"[^}]*\"slots\":\[\([0-9]*\)\].*/\1/"
	echo
	;;
give) golock release "$(cat environment)" ;;
*) echo "usage: environments.sh take|give" >&2; exit 64 ;;
esac
