mkdir tree
echo x > "tree/$(printf '\377\376')"
