# An alert, and hours late, as billing data is; max_runtime_seconds is what stops the run.
# It counts nothing until scav-run is activated as a cost allocation tag of the account.
resource "aws_budgets_budget" "run" {
  count = var.budget_usd == null ? 0 : 1

  name        = local.name
  budget_type = "COST"
  # A monthly budget would begin again in the middle of a run.
  time_unit    = "ANNUALLY"
  limit_amount = format("%.2f", var.budget_usd)
  limit_unit   = "USD"
  tags         = local.tags

  cost_filter {
    name   = "TagKeyValue"
    values = [format("user:scav-run$%s", var.run_id)]
  }

  dynamic "notification" {
    for_each = length(var.budget_emails) == 0 ? {} : {
      actual_80  = { type = "ACTUAL", percent = 80 }
      actual_100 = { type = "ACTUAL", percent = 100 }
    }

    content {
      comparison_operator        = "GREATER_THAN"
      notification_type          = notification.value.type
      threshold                  = notification.value.percent
      threshold_type             = "PERCENTAGE"
      subscriber_email_addresses = var.budget_emails
    }
  }
}
