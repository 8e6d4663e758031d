"""asyncio pieces that have never heard of Kubernetes."""
