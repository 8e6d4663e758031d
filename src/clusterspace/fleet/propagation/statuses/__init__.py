"""Works back to binding back to template.

controller.py   BindingStatuses: what clusters report, where people look for it
"""
