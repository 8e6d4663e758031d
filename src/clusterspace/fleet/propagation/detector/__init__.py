"""Template to policy to binding.

controller.py   Detector: claims templates for policies, keeps one binding for each
bindings.py     what a policy says in the binding of a template
"""
