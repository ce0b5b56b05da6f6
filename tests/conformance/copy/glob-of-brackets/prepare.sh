mkdir tree
echo x > 'tree/[bracket]'
echo x > tree/plain
