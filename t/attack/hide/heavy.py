# Hundreds of megabytes and thousands of mappings to tear down at its end.
import mmap
import os
import time

if os.fork() == 0:
    os.setsid()
    memory = mmap.mmap(-1, 400 << 20)
    for page in range(0, len(memory), 4096):
        memory[page] = 1
    maps = [mmap.mmap(-1, 4096, prot=mmap.PROT_READ | (n % 2) * 2)
            for n in range(20000)]
    open(os.environ["HIDE_READY"], "w").close()
    time.sleep(9999)
