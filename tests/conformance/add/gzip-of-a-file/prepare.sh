echo note > note
gzip -n note
