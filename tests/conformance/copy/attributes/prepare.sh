mkdir tree
echo x > tree/user
python3 -c 'import os; os.setxattr("tree/user", "user.note", b"hi")'
