mkdir -p tree/sub
echo a > tree/a
echo b > tree/sub/b
ln tree/a tree/hard
ln -s a tree/soft
chmod 750 tree/sub
chmod 4755 tree/a
touch -h -d 2001-02-03T04:05:06Z tree/* tree/sub/b tree
tar --owner=1000 --group=1001 -cf plain.tar -C tree .
tar --owner=1000 --group=1001 -czf gzip.tar.gz -C tree .
tar --owner=1000 --group=1001 -cjf bzip.tar.bz2 -C tree .
tar --owner=1000 --group=1001 -cJf xz.tar.xz -C tree .
cp gzip.tar.gz named-otherwise
rm -r tree
touch -d 2002-02-02T02:02:02Z *
