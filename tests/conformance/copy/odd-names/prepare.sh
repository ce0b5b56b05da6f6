mkdir tree
name() { echo x > "tree/$1"; }
name "with space"
name "$(printf 'new\nline')"
name '*star'
name '[bracket]'
name 'quote"and'"'"
name 'back\slash'
name -dash
name .hidden
name "$(printf '\303\244\303\266')"
name "$(printf '%0255d' 0)"
