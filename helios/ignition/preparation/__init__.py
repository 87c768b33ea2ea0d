"""What recipes share: contract declarations, weight layouts, the core writer's inputs."""
