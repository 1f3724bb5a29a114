"""Recipe + site + concurrency -> plan, as pure functions; everything after obeys the plan."""
