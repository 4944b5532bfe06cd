"""Addresses of a run's pages in MLflow."""

TRAINING_VIEW = "workflowType=machine_learning"
"""URL option that opens MLflow's training view; without it, MLflow 3.17 may open its view of chat models."""
