# A coprocess, process substitutions both ways, a pipeline without its head.
coproc { sleep 9999; }
exec 7> >(sleep 9999)
exec 8< <(sleep 9999)
sleep 9999 | sleep 9999 | sleep 9999 &
disown -a
: > "$HIDE_READY"
