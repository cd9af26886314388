# Traps at each signal and at the end that start it anew.
# shellcheck disable=SC2016
export again='
    trap "setsid -f bash -c \"\$again\"" EXIT HUP INT QUIT TERM CHLD
    sleep 9999 &
    while :; do wait; done'
setsid -f bash -c "$again"
sleep 0.05
: > "$HIDE_READY"
