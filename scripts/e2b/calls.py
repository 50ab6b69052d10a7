"""Records which public methods of E2B's Python client a scenario uses, and reports those that it never uses.

A method is recorded when it is looked up on its class or an instance. Methods in `NOT_CALLED` need no call, for the given reason.
Entries for methods that are used, or that the client does not have, are reported too.
"""

from e2b import CommandHandle, Sandbox, Template, Volume, WatchHandle
from e2b.sandbox_sync.commands.command import Commands
from e2b.sandbox_sync.commands.pty import Pty
from e2b.sandbox_sync.filesystem.filesystem import Filesystem
from e2b.sandbox_sync.git import Git

INTERNET = "needs a host outside"
REGISTRY = "pulls an image from a registry: only its instruction would be tested"
BY_NAME = "called in the part with names and TLS"

NOT_CALLED = {
    "Sandbox.beta_pause": "an older name of `pause`",
    "Sandbox.get_mcp_url": BY_NAME,
    "Sandbox.get_mcp_token": BY_NAME,
    "Git.clone": INTERNET,
    "Git.dangerously_authenticate": "stores a password for a host outside",
    "Template.from_alpine_image": REGISTRY,
    "Template.from_arch_image": REGISTRY,
    "Template.from_aws_registry": REGISTRY,
    "Template.from_bun_image": REGISTRY,
    "Template.from_debian_image": REGISTRY,
    "Template.from_fedora_image": REGISTRY,
    "Template.from_gcp_registry": REGISTRY,
    "Template.from_node_image": REGISTRY,
    "Template.from_python_image": REGISTRY,
    "Template.from_ubuntu_image": REGISTRY,
    "TemplateBuilder.apt_install": INTERNET,
    "TemplateBuilder.bun_install": INTERNET,
    "TemplateBuilder.git_clone": INTERNET,
    "TemplateBuilder.npm_install": INTERNET,
    "TemplateBuilder.pip_install": INTERNET,
    "TemplateBuilder.beta_dev_container_prebuild": INTERNET,
    "TemplateBuilder.beta_set_dev_container_start": INTERNET,
}

SEEN = set()


class Recorder:
    """Replaces a method and records that it was looked up."""

    def __init__(self, name, method):
        self.name, self.method = name, method

    def __get__(self, instance, owner=None):
        SEEN.add(self.name)
        return self.method.__get__(instance, owner)


def classes():
    builder = type(Template().from_template("base"))
    return [Sandbox, Commands, CommandHandle, Filesystem, WatchHandle, Pty, Git, Template, builder, Volume]


def methods(of):
    """The public methods of a class, each with the class that defines it."""
    for name in dir(of):
        if name.startswith("_"):
            continue
        owner = next(one for one in of.__mro__ if name in vars(one))
        method = vars(owner)[name]
        if isinstance(method, Recorder) or callable(getattr(of, name)):
            yield name, owner, method


def record():
    for of in classes():
        for name, owner, method in list(methods(of)):
            if not isinstance(method, Recorder):
                setattr(owner, name, Recorder((owner, name), method))
    SEEN.clear()


def faults():
    """Methods with neither a call nor a reason, and outdated reasons."""
    every, called = {}, set()
    for of in classes():
        for name, owner, _ in methods(of):
            full = f"{of.__name__}.{name}"
            every[full] = (owner, name)
            if (owner, name) in SEEN:
                called.add(full)
    missing = [f"{name} is never called" for name in sorted(set(every) - called - set(NOT_CALLED))]
    needless = [f"{name} is called, but is listed in NOT_CALLED" for name in sorted(called & set(NOT_CALLED))]
    unknown = [f"{name} is listed in NOT_CALLED, but does not exist in the client" for name in sorted(set(NOT_CALLED) - set(every))]
    return missing + needless + unknown
