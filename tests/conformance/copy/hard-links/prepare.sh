mkdir -p tree/sub
echo one > tree/a
ln tree/a tree/sub/b
ln tree/a tree/c
