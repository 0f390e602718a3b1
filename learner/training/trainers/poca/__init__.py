"""Multi-agent posthumous credit assignment (Cohen et al. 2022, arXiv:2111.05992)."""
