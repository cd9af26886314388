# A session and a process group of its own, for each of three.
setsid -f sleep 9999
setsid -f setsid -w sleep 9999
setsid -f bash -m -c 'sleep 9999 & wait'
: > "$HIDE_READY"
