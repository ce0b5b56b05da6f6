truncate -s 3M sparse
echo end >> sparse
