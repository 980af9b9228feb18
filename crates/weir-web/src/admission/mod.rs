//! Who may use the backend next: the fair queue with its slots, costs and bounds.
