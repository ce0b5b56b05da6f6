mkdir -p tree/file
echo in > tree/file/in
echo new > tree/dir
tar --owner=0 --group=0 -cf over.tar -C tree file dir
rm -r tree
