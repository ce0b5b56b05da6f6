mkdir tree
mkfifo tree/pipe
