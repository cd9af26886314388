# A program whose file, and whose directory, are gone.
mkdir -p /tmp/deleted
cd /tmp/deleted || exit 1
cp /bin/sleep x
./x 9999 &
until [ "$(readlink /proc/$!/exe)" = /tmp/deleted/x ]; do
    sleep 0.01
done
rm -r /tmp/deleted
: > "$HIDE_READY"
