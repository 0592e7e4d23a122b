# Readers together, a writer alone.
set -eu
a=$(golock acquire --name data --shared --for $$)
b=$(golock acquire --name data -s --for $$)
if golock acquire --name data -n -E 9 --for $$ >out 2>err; then exit 1; else [ $? -eq 9 ]; fi
[ ! -s out ]
golock release "$a"
golock release "$b"
w=$(golock acquire --name data -x -n --for $$)
golock acquire --name data -s -n --for $$ 2>err && exit 1 || [ $? -eq 75 ]
golock release "$w"
