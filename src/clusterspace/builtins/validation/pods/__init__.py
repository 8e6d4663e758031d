"""The rules of pods, wherever a pod is described: alone or as a template.

spec         a pod's spec as a whole, and pod templates; start here
containers   one container: its image, ports and mounts
environment  where a container's variables come from
probes       how a container is asked whether it is well
resources    what a container asks for and may use
security     as whom containers run, and what they may do
volumes      the volumes of a pod, and that each has exactly one source
placement    where a pod may run: affinity, tolerations, spread
updates      what of a pod may change
"""
