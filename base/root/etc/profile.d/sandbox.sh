# A login shell resets PATH (/etc/profile); put back what env has.
PATH=/home/sandbox/.venv/bin:/home/sandbox/.local/bin:$PATH
