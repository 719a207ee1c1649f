"""Protection of the console: the browser's own rules (CSP, Host, Origin) and tokens against forged
requests."""
