mkdir -p tree/sticky tree/closed tree/setgid
for name in setuid group closed/secret plain; do echo $name > tree/$name; done
chmod 4755 tree/setuid
chmod 2640 tree/group
chmod 1777 tree/sticky
chmod 2775 tree/setgid
chmod 600 tree/closed/secret
chmod 700 tree/closed
