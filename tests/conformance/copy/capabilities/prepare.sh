echo x > tool
chmod 755 tool
python3 -c 'import os; os.setxattr("tool", "security.capability", bytes.fromhex("0100000200040000000000000000000000000000"))'
