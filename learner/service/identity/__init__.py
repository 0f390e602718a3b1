"""Who calls: tokens, certificates, and what each principal may do."""
