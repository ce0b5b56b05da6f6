"""What a sandbox may use and what it uses: cgroups, disks, memory given back, pressure."""
