mkdir -p tree/sub
echo old > tree/old
echo in > tree/sub/in
ln -s old tree/link
touch -h -d 1999-12-31T23:59:59Z tree/old tree/link
touch -d 1980-01-01T00:00:00Z tree/sub/in
touch -d 2005-05-05T05:05:05Z tree/sub
touch -d 2006-06-06T06:06:06Z tree
