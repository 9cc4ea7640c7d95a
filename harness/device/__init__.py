"""One phone: adb transport, identity, store on the phone, conditions, sensors, lease."""
