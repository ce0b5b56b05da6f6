mkdir -p tree/dir
echo file > tree/file
echo in > tree/dir/in
ln -s file tree/to-file
ln -s dir tree/to-dir
ln -s /nowhere tree/dangling
ln -s tree by-link
