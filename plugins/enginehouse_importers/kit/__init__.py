"""What all importers use: tables that note what nobody read, files, commands, backends."""
