"""What a template needs besides itself, brought to where it goes.

controller.py    DependencyDistributor: the bindings of dependencies, made and detached
attachments.py   what a binding requires, and by whom another is required
"""
