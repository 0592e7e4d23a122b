# A new version takes the place of the old one only if the slot is still held.
set -eu
id=$(golock acquire --name site --for $$)
echo new >site.new
[ "$1" = kept ] || golock release "$id"
golock held --id "$id"
mv site.new site
golock release "$id"
