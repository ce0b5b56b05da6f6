"""The FnCall tier: stateless tasks in warm containers, which are proved clean between tasks."""
