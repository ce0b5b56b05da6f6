"""System calls and programs that only the runtime needs."""
