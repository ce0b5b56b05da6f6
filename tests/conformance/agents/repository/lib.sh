one() { return 1; }
