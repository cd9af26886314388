# Stops the shell that leads the command, again if it is woken.
shell=$PPID
(
    : > "$HIDE_READY"
    while :; do
        kill -STOP "$shell"
        sleep 0.05
    done
) &
sleep 0.2
