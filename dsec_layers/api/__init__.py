"""The public API: everything the command line can do, as functions over a `Workbench`.

    from dsec_layers.api import mounting
    from dsec_layers.api.workbench import Workbench
    from dsec_layers.model.reference import Reference

    bench = Workbench.default(stores=["threefs:///mnt/3fs/layers"])
    with mounting.mounted(bench, Reference.parse("env/demo:v1"), read_only=True) as rootfs:
        print(rootfs.target)

Each module is one activity, and is imported on its own, so that a lazy start does not pay for the
builder: `importing`, `building`, `composing`, `upgrading`, `committing`, `moving`, `mounting`,
`running`, `looking`, `verifying`, `stats`.
"""
