"""The virtual phone: adbd, root folder, profiles, supervisor."""
