# What people do: nohup, disown, a job of a shell that is gone.
nohup sleep 9999 > /dev/null 2>&1 &
sleep 9999 & disown -h
bash -i -c 'sleep 9999 & disown; exit' > /dev/null 2>&1 < /dev/null
: > "$HIDE_READY"
