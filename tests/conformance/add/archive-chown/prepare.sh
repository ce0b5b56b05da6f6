mkdir -p tree/sub
echo a > tree/a
tar --owner=7 --group=8 -cf plain.tar -C tree a sub
rm -r tree
